"""What frames mean: dissection trees and their fields."""
